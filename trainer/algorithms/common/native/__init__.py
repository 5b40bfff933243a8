"""An update of multi-task SAC on a CPU, in C between its matrix products."""
