"""The program that runs inside every sandbox.

Standard library only, Python 3.8 or newer. Its modules are joined into one text by
`hermes_sandbox.protocol.bootstrap` and sent over the stream, so that no image needs preparing; no two of them may
therefore use one top-level name.
"""
