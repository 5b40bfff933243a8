"""`orchestrator doctor`: what is wrong with a place before a run finds out, and what to write into the config.

`gather` looks, `checks` and `slurmchecks` name the facts and judge them. `probing` sends the job that `probe` is,
`probechecks` judges its report, `visit` shows it all.
"""
