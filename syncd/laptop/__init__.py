"""The machine that mirrors: what is let in, what waits to go out, and what people see of it."""
