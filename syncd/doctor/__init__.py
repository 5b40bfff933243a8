"""`syncd doctor`: what stands between this machine and the other side, a line each with what to do.

`gather` collects facts (the only part that touches anything), `facts` names them, `checks` judges them (pure), `views`
shows the findings.
"""
