"""Files between machines: policies out of a shared folder, experience into it."""
