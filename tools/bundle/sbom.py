"""The bill of materials of a bundle, as an SPDX 2.3 document in JSON, from what dpkg knows."""

import datetime
import hashlib
import json
import re
import subprocess

FIELDS = ["Package", "Version", "Architecture", "source:Package", "source:Version", "Homepage", "Maintainer"]


def installed(package):
    """dpkg's fields of an installed package."""
    form = "".join("${%s}\\t" % field for field in FIELDS)
    shown = subprocess.run(["dpkg-query", "-W", "-f", form, package], capture_output=True, text=True, check=True)
    return dict(zip(FIELDS, shown.stdout.split("\t")))


def _id(kind, name):
    return f"SPDXRef-{kind}-" + re.sub(r"[^A-Za-z0-9.-]", "-", name)


def _debian_package(package):
    fields = installed(package)
    return {
        "name": package,
        "SPDXID": _id("Package", package),
        "versionInfo": fields["Version"],
        "supplier": f"Person: {fields['Maintainer'].replace('<', '(').replace('>', ')')}",
        "downloadLocation": "NOASSERTION",
        "filesAnalyzed": False,
        "sourceInfo": f"built from Debian source {fields['source:Package']} {fields['source:Version']}",
        "licenseConcluded": "NOASSERTION",
        "licenseDeclared": "NOASSERTION",
        "licenseComments": f"doc/{package}/copyright.gz",
        "copyrightText": "NOASSERTION",
        "externalRefs": [
            {
                "referenceCategory": "PACKAGE-MANAGER",
                "referenceType": "purl",
                "referenceLocator": f"pkg:deb/debian/{package.replace('+', '%2B')}@{fields['Version'].replace('+', '%2B')}"
                f"?arch={fields['Architecture']}&distro=bookworm",
            }
        ],
    }


def document(folder, files, version, epoch):
    """files: {path below folder: Debian package, or None for our own}. The JSON text; the same input, the same text."""
    own = {
        "name": "tandem",
        "SPDXID": _id("Package", "tandem"),
        "versionInfo": version,
        "supplier": "NOASSERTION",
        "downloadLocation": "NOASSERTION",
        "filesAnalyzed": False,
        "licenseConcluded": "NOASSERTION",
        "licenseDeclared": "Apache-2.0",
        "licenseComments": "LICENSE",
        "copyrightText": "NOASSERTION",
    }
    packages = sorted({package for package in files.values() if package is not None})
    entries, relationships = [], [
        {"spdxElementId": "SPDXRef-DOCUMENT", "relationshipType": "DESCRIBES", "relatedSpdxElement": own["SPDXID"]}
    ]
    digests = []
    for path, package in sorted(files.items()):
        content = (folder / path).read_bytes()
        digests.append(hashlib.sha256(content).hexdigest())
        entries.append(
            {
                "fileName": f"./{path}",
                "SPDXID": _id("File", path),
                "checksums": [
                    {"algorithm": "SHA1", "checksumValue": hashlib.sha1(content).hexdigest()},
                    {"algorithm": "SHA256", "checksumValue": digests[-1]},
                ],
                "licenseConcluded": "NOASSERTION",
                "copyrightText": "NOASSERTION",
            }
        )
        owner = own["SPDXID"] if package is None else _id("Package", package)
        relationships.append(
            {"spdxElementId": owner, "relationshipType": "CONTAINS", "relatedSpdxElement": _id("File", path)}
        )
    for package in packages:
        relationships.append(
            {
                "spdxElementId": own["SPDXID"],
                "relationshipType": "DEPENDS_ON",
                "relatedSpdxElement": _id("Package", package),
            }
        )
    name = f"tandem-{version}-linux-amd64"
    created = datetime.datetime.fromtimestamp(epoch, datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    digest = hashlib.sha256("".join(digests).encode()).hexdigest()
    return json.dumps(
        {
            "spdxVersion": "SPDX-2.3",
            "dataLicense": "CC0-1.0",
            "SPDXID": "SPDXRef-DOCUMENT",
            "name": name,
            "documentNamespace": f"urn:tandem:bundle:{digest}",
            "creationInfo": {"created": created, "creators": ["Tool: tools/bundle/make_bundle.py"]},
            "packages": [own] + [_debian_package(package) for package in packages],
            "files": entries,
            "relationships": relationships,
        },
        indent=1,
    )
