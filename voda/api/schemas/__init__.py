"""The records that travel over HTTP, shared by the server, the command line and the OpenAPI document.

A record that is answered is called a `...View`, so that none has the name of a domain class, and a page of them a
`...List`. A body that a use case reads is the use case's own type (voda.application). Add a record to the module of
its resource, or add a module; import it from there: there is no list to edit.
"""
