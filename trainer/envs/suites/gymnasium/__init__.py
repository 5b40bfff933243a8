"""Environments that have Gymnasium's interface, as a suite. `import gymnasium` is the library here, too."""
