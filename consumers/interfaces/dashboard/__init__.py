"""The dashboard: web pages from which people supervise agents (`deed dashboard`).

The dashboard is a separate process on the loopback interface. Humans' keys may sign here; the process that serves the
agents never uses one. Each browser is logged in as one person (``account``). Four rules hold everywhere.

- A page is data: its function (``pages``) runs queries and returns plain JSON values (``page.Page``). The template
  shows these values and nothing else, so `PATH.json` is the same answer for programs. Python code contains no HTML.
- A thing to decide is read from signed entries and verified; lists come from the views, as on the command line. Text
  in events is untrusted and stays text (autoescape, no inline script or style, strict CSP).
- Loopback does not authenticate, because agents run on this machine. Reading requires a launch link from the terminal.
  Signing requires the human's passphrase and a token that is bound to the exact thing decided (``guard``).
- Everything works without scripts; ``static/app.js`` adds live updates and keyboard shortcuts.

Rejected designs: a browser framework or any third party's script, because a person signs here; sessions on disk,
because they would outlive the terminal in which the dashboard runs; passwords for reading, because people would type
the passphrase of their key there; WebSockets, because SSE carries all that is needed.
"""
