"""The ground of all packages, of the standard library (`cli`: typer). `anchorleg.job` is the door for programs."""
