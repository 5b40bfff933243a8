"""The ground that all packages stand on, of the standard library alone. `anchorleg.job` is the door for programs."""
