"""Importing it finds how MuJoCo draws here, before mujoco is loaded; where it cannot, the importing file is skipped."""

from __future__ import annotations

from needs import need_drawing

need_drawing()
