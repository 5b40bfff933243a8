"""Ways to the other side: our frames over ssh, over paramiko, or to a child on this machine."""
