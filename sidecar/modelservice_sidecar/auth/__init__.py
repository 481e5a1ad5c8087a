"""Proof of who a caller is: issuers' keys and the signatures made with them.

Owns everything that needs a key. The rules over a token's form and claims are in `core.tokens`, what a caller may do in
`core.authorization`, the HTTP side in `middleware.auth`. Imported only where a configuration asks for tokens.
"""
