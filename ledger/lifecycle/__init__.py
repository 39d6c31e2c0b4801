"""Pure state machines: which event may follow in which state.

``rules`` reads the tables of ``proto/rules``, ``machine`` decides an event by them, and one module for each family has
its conditions and its state. The gate, the auditors and the views all call ``decide``, so they never disagree. The
rules of agents and keys are in ``authority`` and ``admission.authority``. A package that brings a family brings its
rules.
"""
