"""The verbs of ``deed``, one module a verb or family; each is imported only when it is called."""
