"""The server side of the bus: the nats-server, the intake of requests, and what nodes share."""
