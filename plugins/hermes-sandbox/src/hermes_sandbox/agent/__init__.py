"""The program that runs inside every sandbox.

Standard library only, Python 3.8 or newer. All modules of this package are sent over the stream by
`hermes_sandbox.protocol.bootstrap`, so that no image needs preparing, and imported there from memory by
`boot.importer`.
"""
