"""Credentials: token kinds, minting, verification and the ownership rule.

Nothing heavy is imported here: a command that only shows a queue pays for no cryptography.

* `kinds`      the four token kinds, `Identity`, `LaunchStatement`
* `keys`       sub-keys per kind
* `keygen`     making a new cluster key
* `mint`       making tokens
* `verify`     checking them
* `gate`       what a server makes of an authorization header, by mode
* `ownership`  who may act on whose job
* `node_names` who may register as a node, and speak for it
* `posture`    which `[auth]` settings are refused or warned about
* `term_proof` who may name a term of the controllers
* `passing`    what a controller says of a call that it passes on
* `errors`     the ways in which a credential can be refused
"""

__version__ = "0.1.0"
