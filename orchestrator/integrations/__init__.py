"""Programs of one's own in other people's frameworks. Nothing here is imported by the rest; each brings its framework.

`checkpointer` (any loop), `sb3`, `lightning`, `transformers`; `rng` and `envs` for resumes that are exact. See
docs/programs.md.
"""
