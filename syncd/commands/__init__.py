"""The verbs of the `syncd` command, one module a noun."""
