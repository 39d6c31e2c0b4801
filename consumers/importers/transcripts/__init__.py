"""Transcripts: what models thought aloud, brought in as imported reasoning that grants nothing.

    from consumers.importers.transcripts.conversation import Progress
    from consumers.importers.transcripts.files import find_transcripts, read_transcript
    from consumers.importers.transcripts.importer import TranscriptImport

    progress = Progress()
    importing = TranscriptImport(author.name, reader.answer, author.put_blob, append, progress)
    for file in find_transcripts(path):
        for response in read_transcript(file, path, progress):
            importing.take(response)
    importing.flush()
    print(importing.tally.answer())

The words used here: a *response* is one answer of a model, however many lines of a file it takes; its *original* is
those lines byte for byte; a *thought* is a response with the graph that was read from it; what is *hidden* says that it
thought but not what.

Read are sessions of Claude Code and Codex (JSON Lines), messages and responses in the forms that
``consumers.sdk.thinking.response`` lists, conversations as ``lines.VENDORS`` names them, and text with thinking tags.
"""
