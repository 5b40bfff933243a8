"""`orchestrator doctor`: what is wrong with a place before a run finds out, and what to write into the config.

`gather` collects facts, `facts` names them, `checks` judges them (pure), `folder` tries the shared folder, `probing`
sends the job that `probe` is (standard library only), `probechecks` and `programchecks` judge its report, `advice`
turns it into config values, `views` shows all.
"""
