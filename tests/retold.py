"""Accounts of work that was done twice, in different words and two languages, and of work that was done only once.

Each account is ``(task, outcome, findings)``. The author of the second account of a pair never saw the first; the two
share only unique names, such as a file or a tool. The accounts in ``ALONE`` share common words with others ("slow",
"test", "cache", 测试, 配置), but describe other work.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class Account(NamedTuple):
    """A task, its outcome, and the findings."""

    task: str
    outcome: str
    findings: tuple[str, ...]


TWICE: Final = (
    (
        Account(
            "CSV import drops rows with quoted commas",
            "The reader now honours quotes; a regression test covers it",
            ("The importer splits each line at commas before it looks at quotes", "Excel quotes every address field"),
        ),
        Account(
            "Importing customer addresses from CSV loses records",
            "Switched to the csv module of the standard library",
            ("A comma inside quotation marks was taken for a separator", "Rows with such addresses were skipped"),
        ),
    ),
    (
        Account(
            "JWT tokens never expire",
            "Tokens get an exp claim of 15 minutes",
            ("auth.py signs the token without exp", "Clients refresh on every start, so nobody noticed"),
        ),
        Account(
            "Why do users stay logged in for ever?",
            "Added an expiry to the JWT",
            ("The JWT is issued with no expiration claim", "The signing happens in auth.py, line 42"),
        ),
    ),
    (
        Account(
            "The websocket reconnect test is flaky",
            "The test waits for the close frame now",
            ("The server closes the websocket after the client has reconnected", "A sleep of 50 ms hid the race"),
        ),
        Account(
            "Web socket re-connection test fails now and then",
            "Made the order of close and reconnect deterministic",
            ("There is a race between the close frame and the new connection", "It fails once in 40 runs on CI"),
        ),
    ),
    (
        Account(
            "Find out why the connection pool leaks file handles",
            "Connections are returned in a finally block",
            ("After an exception the pool never gets its connection back", "lsof shows 900 open handles after a day"),
        ),
        Account(
            "Service runs out of file descriptors overnight",
            "The pool closes what an error left open",
            ("Handles leak from the connection pool", "Each exception in a handler keeps one connection open"),
        ),
    ),
    (
        Account(
            "Docker image of the worker is 2 GB",
            "Down to 300 MB with a multi-stage build",
            ("Build tools and the pip cache stay in the last layer", "The base image could be slim"),
        ),
        Account(
            "Shrink the worker's container",
            "The Docker image lost 1.7 GB",
            ("A multi-stage build leaves the compilers out", "pip's cache was shipped in a layer"),
        ),
    ),
    (
        Account(
            "Dates in invoices are a day off for customers in Asia",
            "Invoices use the customer's time zone",
            ("The invoice date is taken from UTC midnight", "Tokyo is nine hours ahead"),
        ),
        Account(
            "Invoice shows yesterday's date in Tokyo",
            "Time zone of the account is applied when rendering",
            ("render_invoice formats the date in UTC", "All time zones east of Greenwich are affected"),
        ),
    ),
    (
        Account(
            "Search results are slow with more than 10,000 products",
            "An index on products.name brings it from 4 s to 30 ms",
            ("The query does a sequential scan of products", "ILIKE with a leading wildcard cannot use the b-tree"),
        ),
        Account(
            "Product search takes four seconds",
            "A trigram index on the name column",
            ("EXPLAIN shows a sequential scan over products", "The wildcard in front rules the b-tree index out"),
        ),
    ),
    (
        Account(
            "登录令牌永不过期",
            "令牌现在十五分钟后过期",
            ("签发令牌时没有设置过期时间", "客户端每次启动都会刷新，所以没人发现"),
        ),
        Account(
            "用户为什么一直保持登录状态",
            "给令牌加上了过期时间",
            ("签发的令牌里没有过期时间字段", "刷新接口没有检查令牌"),
        ),
    ),
    (
        Account(
            "查明连接池为什么泄漏文件句柄",
            "出现异常后连接会归还给连接池",
            ("抛出异常后连接没有归还连接池", "一天之后有九百个打开的句柄"),
        ),
        Account(
            "服务夜里耗尽文件描述符",
            "异常时也关闭连接",
            ("文件句柄从连接池泄漏", "每次异常都会留下一个没有关闭的连接"),
        ),
    ),
    (
        Account(
            "导入CSV时丢失带引号的行",
            "解析器现在先处理引号再按逗号切分",
            ("导入程序在检查引号之前就按逗号切分", "地址字段都带引号"),
        ),
        Account(
            "客户地址导入后少了记录",
            "改用标准库的CSV解析器",
            ("引号里的逗号被当作分隔符", "带逗号的地址整行被跳过"),
        ),
    ),
    (
        Account(
            "亚洲客户的发票日期差一天",
            "发票按客户时区显示日期",
            ("发票日期取自UTC零点", "东京比UTC早九个小时"),
        ),
        Account(
            "东京客户看到的发票日期是昨天",
            "渲染发票时使用账户的时区",
            ("渲染函数用UTC格式化发票日期", "所有东边的时区都受影响"),
        ),
    ),
    (
        Account(
            "商品搜索超过一万条时很慢",
            "给商品名称加索引后从四秒降到三十毫秒",
            ("查询对商品表做全表扫描", "前置通配符无法使用索引"),
        ),
        Account(
            "搜索商品要等四秒",
            "在名称列上建立三元组索引",
            ("执行计划显示对商品表全表扫描", "通配符在前面，普通索引用不上"),
        ),
    ),
)

ALONE: Final = tuple(
    Account(task, outcome, (first, second))
    for task, outcome, first, second in (
        (
            "Translate the manual into French",
            "All 12 chapters are done",
            "The glossary lacks 40 terms",
            "Screenshots still show English menus",
        ),
        (
            "Upgrade Django from 4.2 to 5.1",
            "Upgraded, tests pass",
            "Two middlewares used a removed hook",
            "USE_TZ is true by default now",
        ),
        (
            "Add dark mode to the settings page",
            "Shipped behind a flag",
            "Icons are PNG and need a second set",
            "Contrast of links was below 4.5",
        ),
        (
            "Measure cold start of the lambda",
            "1.8 s, of which 1.1 s are imports",
            "boto3 is imported eagerly",
            "Memory above 512 MB changes nothing",
        ),
        (
            "Write the runbook for failover",
            "Reviewed by operations",
            "The replica needs a manual promotion",
            "DNS keeps the old address for 60 s",
        ),
        (
            "Rotate the S3 credentials",
            "Old keys are disabled",
            "The nightly backup used a personal key",
            "Nobody owns the staging bucket",
        ),
        (
            "Spam filter marks newsletters",
            "The sender is signed with DKIM",
            "SPF lists an old address range",
            "The unsubscribe header is missing",
        ),
        (
            "Decide on a queue for thumbnails",
            "We stay with Redis streams",
            "Kafka costs three more machines",
            "Retries need a dead letter list",
        ),
        (
            "Remove the legacy SOAP endpoint",
            "Removed with its schema",
            "One partner still called it in May",
            "The gateway kept a rewrite rule",
        ),
        (
            "Type-check the billing package",
            "mypy strict passes",
            "Decimal and float were mixed in discounts",
            "Three functions returned None silently",
        ),
        (
            "GPU out of memory in training",
            "Batch size 16 with accumulation",
            "Attention masks were kept per step",
            "Mixed precision halves activations",
        ),
        (
            "Benchmark zstd against gzip",
            "zstd level 3 wins",
            "gzip -9 is six times slower",
            "Dictionaries help for small payloads",
        ),
        (
            "Audit npm licences",
            "Two packages were replaced",
            "One GPL library came in by a plugin",
            "The lock file lists 1,400 packages",
        ),
        (
            "Crash on startup on Android 8",
            "Fixed by lazy notification channels",
            "The emoji font is absent there",
            "Only 0.3 % of users run it",
        ),
        (
            "Accessibility review of checkout",
            "Nine issues filed",
            "Error text is not announced",
            "The focus ring was switched off",
        ),
        (
            "Estimate the cost of logs",
            "Sampling saves 60 %",
            "Health checks are half of all lines",
            "Retention is 90 days by contract",
        ),
        (
            "Introduce feature flags",
            "OpenFeature with a file provider",
            "Old toggles live in four places",
            "Marketing wants percentages",
        ),
        ("Replace moment.js", "date-fns is in", "Bundle shrinks by 70 kB", "Two locales had wrong plurals"),
        (
            "Why is the CI cache never hit?",
            "The key holds the lock file's hash now",
            "The key held the commit",
            "Caches are scoped by branch",
        ),
        (
            "Prototype voice commands",
            "Stopped: accuracy too low",
            "Background noise doubles errors",
            "The wake word costs 8 % battery",
        ),
        (
            "Unit tests for tax rules",
            "41 rules covered",
            "Reduced rates changed in July",
            "Rounding is per line, not per sum",
        ),
        (
            "Set up Grafana alerts",
            "Five alerts page, the rest mail",
            "Disk alerts fired every night",
            "The on-call list was from 2023",
        ),
        (
            "Review the password policy",
            "Length 12, no forced change",
            "Old hashes are bcrypt cost 8",
            "Breached passwords are not refused",
        ),
        (
            "Split the monolith's mail module",
            "It is a service now",
            "Templates were read from the database",
            "Attachments went through /tmp",
        ),
        ("Onboard the new designer", "Access granted", "Figma seats are used up", "The style guide is out of date"),
        (
            "Explain the spike of 502 errors",
            "The load balancer's idle time was too short",
            "Keep-alive was 60 s behind it",
            "It began with the July release",
        ),
        ("把帮助中心迁移到新域名", "旧链接全部重定向", "站点地图没有更新", "搜索引擎收录需要两周"),
        ("评估数据库备份时间", "全量备份四十分钟", "增量备份没有校验", "备份磁盘只剩一成空间"),
        ("支付回调偶尔重复", "按订单号去重", "支付网关会重试三次", "回调日志没有保存请求头"),
        ("给移动端加指纹解锁", "两个平台都完成", "旧机型没有安全芯片", "失败五次后回到密码"),
        ("升级编译器到最新版", "警告清零", "两处未定义行为被发现", "链接时间增加一倍"),
        ("压测聊天服务", "单机两万连接", "心跳占了三成流量", "日志锁是瓶颈"),
        ("整理测试环境配置", "配置统一放进仓库", "有六份过期的密钥", "端口号互相冲突"),
        ("推荐算法离线评估", "召回率提升两个点", "冷启动用户仍然很差", "样本里有机器人流量"),
        ("修复打印标签错位", "边距按毫米计算", "驱动默认缩放", "标签纸有两种规格"),
        ("调查短信送达率下降", "更换供应商线路", "模板签名未备案", "国际号码缺少前缀"),
        ("编写新人入职文档", "目录和示例完成", "权限申请流程最耗时", "截图来自旧版本"),
        ("优化首页图片加载", "首屏快了一秒", "横幅图片没有压缩", "懒加载阈值太小"),
        ("统一错误码", "文档列出全部错误码", "三个模块使用相同数字", "客户端依赖旧文案"),
        ("清理无人使用的接口", "删除十二个接口", "监控显示半年没有调用", "一个报表脚本仍在使用"),
    )
)
