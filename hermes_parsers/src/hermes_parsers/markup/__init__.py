"""Calls as tagged parameters: `<function=f><parameter=a>1</parameter></function>` and similar formats.

A dialect is data (`markup.dialect`); one reader reads them all. None of these formats escapes values, so the
surrounding text decides where a value ends: see `markup.values`.
"""
