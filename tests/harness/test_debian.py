"""Package names out of apt's listing."""

from harness.debian import first_alternatives

LISTING = """\
one
  PreDepends: dpkg
  Depends: libc6
 |Depends: media-types
 |Depends: mime-support
  Depends: <mime>
    provider-of-mime
  Depends: <editor>
    nano
    vim
  Depends: libssl3:any
  Recommends: docs
"""


def test_first_of_alternatives_and_first_provider_are_taken() -> None:
    assert first_alternatives(LISTING) == ["dpkg", "libc6", "media-types", "nano", "libssl3"]
