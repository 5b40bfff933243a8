"""The client as a service of the system."""
