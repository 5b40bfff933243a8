"""`syncd doctor`: what stands between this machine and the other side, a line each with what to do.

`facts` names and gathers what is so (the only part that touches anything), `checks` judges it.
"""
