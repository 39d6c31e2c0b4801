"""The dashboard: the page from which a person supervises agents (`deed dashboard`).

A process of its own, on the loopback interface, beside whatever serves the agents: here a human's key may sign, there
never. Four rules hold everywhere.

- A page is data: its function (``pages``) asks queries and returns plain JSON values (``page.Page``); the template
  shows them and nothing else, so `PATH.json` is the same answer for programs. No HTML stands in Python.
- What is shown to be decided is read the checked way, from signed entries; lists are a view's word, as on the command
  line. Whoever writes an event writes text: it stays text (autoescape, no inline script or style, strict CSP).
- Loopback is no gate, since agents live on this machine. Reading takes a launch link out of the terminal, signing
  the human's passphrase and a token that is bound to the exact thing decided (``guard``).
- Everything works without scripts; ``static/app.js`` adds the live tail and keys.

Refused: a framework in the browser, or any third party's script, because a person signs here; sessions kept on disk,
which would outlive the terminal that shows the dashboard runs; WebSockets, which tell nothing that SSE does not.
"""
