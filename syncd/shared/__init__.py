"""What lies in a shared folder, and how it is read and written."""
