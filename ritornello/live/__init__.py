"""The live page: the runs in a results folder, in a browser (`python -m ritornello.live`).

It reads the files that a run writes anyway, so it works for runs of other processes, during a run
and after it. It writes nothing but the commands of its user, as files in a run's `control/`
(agent/run/control.py). The trainer opens no port and knows nothing of this package.

    journal.py    the lines of metrics.jsonl as columns, thinned for a chart
    overview.py   one line about each run, from the edges of its files
    analysis/places.py: runs below a folder, and what their files say
    comparison.py several runs, by the statistics of analysis/
    guard.py      who may ask: token, cookie, Host, content policy
    server.py     routes; __main__.py: the socket
    static/       the page itself: HTML, CSS, JavaScript, and the charts of uPlot
"""
