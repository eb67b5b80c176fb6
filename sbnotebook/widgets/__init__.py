"""Panels for notebooks: what the magics do, to be looked at and clicked.

Each panel is an ipywidget that works on a :class:`sbnotebook.Namespace` or :class:`sbnotebook.Entity` of
:mod:`sbnotebook.client`; everything that it does is a plan, which is shown before it is applied.
"""
