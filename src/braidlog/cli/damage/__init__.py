"""Commands for data that is damaged and for nodes that are lost.

They work on directories that no process has open; nothing here asks a node.
"""
