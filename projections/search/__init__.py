"""Full-text search over the texts that people and agents wrote: a row for each event with human text.

``fold`` says, by kind, which fields are text; ``words`` says what a word is, both in the index and in queries. Only
text that an event itself contains is indexed: not the content of a blob (sealed or merely long), and not events that
programs derived from others (briefs, validations).
"""
