"""`orchestrator doctor`: what is wrong with a place before a run finds out, and what to write into the config.

`facts` names what may be known, `gather` looks; `checks` and `slurmchecks` judge. `probing` sends the job that `probe`
is (standard library only), `probechecks` judge its report. `advice` turns all of it into values for the config,
`visit` shows it.
"""
