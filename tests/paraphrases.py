"""Reasonings, and the same tasks in another person's words, by which embedders are calibrated."""

from __future__ import annotations

PAIRS = [
    (
        "The JWT secret is read from the environment. All variables are logged at start. Rotate the JWT secret.",
        "key rotation for tokens leaked into log files",
    ),
    (
        "The connection pool is closed before the last request returns. Logins fail at night. Close it at the end.",
        "users cannot sign in because database connections run out",
    ),
    (
        "The cache never expires its entries. Memory grows by 2 GB a day. Give the cache a size limit.",
        "out of memory errors caused by unbounded caching",
    ),
    (
        "The backup writes to the same disk as the database. The disk is full. Move the backup to other storage.",
        "no space left on the drive where dumps are kept",
    ),
    (
        "Passwords are hashed with MD5. An attacker can reverse them. Use scrypt for password hashing.",
        "strengthen how we store credentials of accounts",
    ),
    (
        "The index on orders.created_at is missing. The report scans the whole table. Add an index.",
        "speed up the slow sales query",
    ),
    (
        "The test sleeps for two seconds and then asserts. On a loaded machine it fails. Wait for the event instead.",
        "flaky unit tests with timing problems",
    ),
    (
        "The certificate expires on Friday. Nobody renews it automatically. Install a renewal job.",
        "TLS certs about to run out",
    ),
    (
        "The parser reads the whole file into memory. Files of 8 GB kill it. Read it line by line.",
        "process large uploads by streaming",
    ),
    (
        "User input is put into the SQL text. A quote ends the string. Use bound parameters.",
        "prevent injection attacks in database queries",
    ),
    (
        "The image is built from latest. Last week it changed under us. Pin the base image by digest.",
        "make docker builds reproducible",
    ),
    (
        "Two workers take the same job. The lock is released too early. Hold the lock until the job is done.",
        "race condition: tasks are executed twice",
    ),
    (
        "The button has grey text on grey. Contrast is 2 to 1. Use darker text.",
        "improve accessibility of the user interface colours",
    ),
    (
        "Payments are retried without an idempotency key. Customers were charged twice. Send a key.",
        "double billing of clients",
    ),
    (
        "The message queue has no limit. Producers are faster than consumers. Apply back pressure.",
        "broker overloaded because messages pile up",
    ),
    (
        "Dates are stored in local time. In October an hour is lost. Store them in UTC.",
        "bugs with daylight saving and time zones",
    ),
    (
        "The licence of the library is GPL. We ship closed source. Replace the library.",
        "legal risk of a copyleft dependency",
    ),
    (
        "The model was trained on data of 2019. Prices have doubled since. Train it again.",
        "forecasts are wrong because the training set is outdated",
    ),
    ("密钥保存在环境变量中。启动时变量被写入日志。应该更换密钥。", "日志泄露了密码，需要轮换凭证"),
    ("连接池关闭得太早。夜间登录失败。应该在最后关闭连接池。", "用户无法登录，数据库连接不够"),
]

# The task of a reasoning, and a receiver's wording of it, which shares some words.
TASKS = [
    ("Is the JWT secret leaked?", "Check whether the JWT secret leaked into the logs"),
    ("Why do logins fail at night?", "logins fail every night, find out why"),
    ("Does the cache grow without limit?", "find why the cache grows"),
    ("Why is the sales report slow?", "make the sales report faster"),
    ("Security audit of authentication system", "audit our authentication for security problems"),
    ("Choose a database for the event store", "which database should the event store use"),
    ("Is the backup complete?", "verify that backups are complete"),
    ("Find why unit tests are flaky", "flaky unit tests: find the cause"),
]
