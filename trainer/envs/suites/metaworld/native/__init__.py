"""Meta-World steps without Python: C over the simulator that Python has loaded, checked against the Python path."""
