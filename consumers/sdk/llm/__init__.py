"""A language model as an optional adviser: any endpoint that speaks OpenAI's chat completions.

    from consumers.sdk.llm.model import LlmClient, LlmSettings, Message, read_endpoint

    settings = LlmSettings(base_url="https://llm.example.org/v1", model="some-model", api_key_variable="LLM_API_KEY")
    client = LlmClient(read_endpoint(settings, environment))
    answer = client.ask([Message("system", "Answer with JSON."), Message("user", "…")], Verdict)
    print(answer.value, answer.model, answer.prompt_sha256)

Baton works without it: nothing that a model says opens a gate, raises trust or replaces verbatim facts. What it says is
never trusted: answers are bounded in size and time, decoded strictly as the type that was asked for, and checked by
whoever asked. What is told to it (the texts of steps, written by others) is data between marks, never an instruction.

The HTTP library is loaded at the first call.
"""
