"""A language model as an optional adviser: models of OpenAI, of Anthropic, and of compatible servers.

    from deedbook.consumers.sdk.llm.model import LlmClient, LlmSettings, Message, read_endpoint

    settings = LlmSettings(base_url="https://llm.example.org/v1", model="some-model", api_key_variable="LLM_API_KEY")
    client = LlmClient(read_endpoint(settings, environment.get))
    answer = client.ask([Message("system", "Answer with JSON."), Message("user", "…")], Verdict)
    print(answer, client.model)

Deedbook works without it. A model's answer never opens a gate, raises trust or replaces verbatim facts, and the caller
checks every answer. The HTTP library is loaded at the first call.
"""
