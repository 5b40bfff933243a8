"""`python -m syncd` is the `syncd` command."""

from syncd.cli import main

if __name__ == "__main__":
    main()
