"""Executing the records of a log, over any state. Pure.

What an application is, the kinds of records, what a procedure sees, outcomes, epochs,
succession, and what a state must be able to do. Times, random bytes and records are
passed in; no file, thread, clock or socket is known here.
"""
