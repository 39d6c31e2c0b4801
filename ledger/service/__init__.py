"""The server side of the bus: the nats-server, the intake of requests, and the data that nodes share."""
