"""Sealed content: encrypted under a key of its subject, so that destroying this one key erases it in every copy.

A *subject* is what somebody may have to forget: a person, a customer, a contract. Its name is in the log for ever, so
it should be a pseudonym. Each subject has a *subject key*, which a *key service* stores outside of the ledger's folder
(``keys``). Sealed content is always a *sealed blob* (``sealed_blob``): a random data key encrypts the content, and the
subject key encrypts (*wraps*) the data key, which is in the blob's header. A text that an event would hold is in a
sealed blob, and the event holds a *sealed reference* to it (``reference``).

``deed erase`` destroys the subject key. Then every sealed blob of the subject is unreadable: in the ledger, on its
other nodes, in bundles and in old backups. Copies of the subject key that somebody exported or backed up remain, and so
does content that somebody has read.

"Sealed" also describes the file of a signing key that has a passphrase (``format.identity``). The two share only the
name.
"""
