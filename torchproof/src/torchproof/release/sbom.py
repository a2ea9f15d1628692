"""A wheel's software bill of materials, in CycloneDX: what it is, needs, and was compiled with."""

import datetime
import json
import os
import re
import uuid
import zipfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cyclonedx.model import HashAlgorithm, HashType
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentScope, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packageurl import PackageURL
from packaging.metadata import Metadata
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from wheel.wheelfile import WheelFile

from torchproof.files import sha256
from torchproof.release.distributions import EPOCH
from torchproof.release.version import ReleaseError

# In the marker of what only an extra brings.
EXTRA = re.compile(r"\bextra\b")


@dataclass(frozen=True)
class Contents:
    """What a wheel says of itself: its metadata, and of its library what a build.json describes."""

    metadata: Metadata
    library: dict[str, Any]
    sha256: str


def inspect(wheel: Path) -> Contents:
    """Read a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        (metadata,) = (n for n in archive.namelist() if n.endswith(".dist-info/METADATA"))
        library = [n for n in archive.namelist() if n.endswith("lib/build.json")]
        return Contents(
            metadata=Metadata.from_email(archive.read(metadata), validate=False),
            library=json.loads(archive.read(library[0])) if library else {},
            sha256=sha256(wheel),
        )


def embed(wheel: Path, target: Path) -> Path:
    """Copy a wheel to a folder, its bill of materials in `.dist-info/sboms/` (PEP 770).

    That document has no hash of the wheel: a file cannot contain its own.
    """
    made = target / wheel.name
    with WheelFile(wheel) as source, WheelFile(made, "w") as copy:
        for member in source.infolist():
            if member.filename != source.record_path:
                copy.writestr(member, source.read(member))
        name = canonicalize_name(inspect(wheel).metadata.name)
        bill = f"{source.dist_info_path}/sboms/{name}.cdx.json"
        copy.writestr(bill, document(wheel, hashed=False))
    return made


def document(wheel: Path, *, hashed: bool = True) -> str:
    """The bill of materials as CycloneDX JSON, with the wheel's own hash where `hashed`."""
    contents = inspect(wheel)
    bom = Bom(serial_number=uuid.uuid5(uuid.NAMESPACE_OID, contents.sha256))
    bom.metadata.timestamp = datetime.datetime.fromtimestamp(
        int(os.environ.get(EPOCH, "0")), datetime.timezone.utc
    )
    root = _package(contents.metadata)
    if hashed:
        root.hashes.add(HashType(alg=HashAlgorithm.SHA_256, content=contents.sha256))
    bom.metadata.component = root
    needs = _requirements(contents.metadata.requires_dist or ())
    for component in (*needs, *_built_with(contents.library)):
        bom.components.add(component)
    bom.register_dependency(root, needs)
    text = str(JsonV1Dot6(bom).output_as_string(indent=1)) + "\n"
    if (error := JsonStrictValidator(SchemaVersion.V1_6).validate_str(text)) is not None:
        raise ReleaseError(f"the bill of materials of {wheel.name} breaks its schema: {error}")
    return text


def _package(metadata: Metadata) -> Component:
    return Component(
        type=ComponentType.LIBRARY,
        name=metadata.name,
        version=str(metadata.version),
        purl=PackageURL("pypi", name=metadata.name, version=str(metadata.version)),
        bom_ref=f"{metadata.name}@{metadata.version}",
    )


def _requirements(stated: Iterable[Requirement]) -> list[Component]:
    """What is needed without an extra: each package once, under whatever markers it is named."""
    named: dict[str, list[Requirement]] = {}
    for requirement in stated:
        if not EXTRA.search(str(requirement.marker)):
            named.setdefault(canonicalize_name(requirement.name), []).append(requirement)
    return [
        Component(
            type=ComponentType.LIBRARY,
            name=requirements[0].name,
            description="; ".join(map(_versions, requirements)),
            scope=ComponentScope.REQUIRED,
            purl=PackageURL("pypi", name=requirements[0].name),
            bom_ref=requirements[0].name,
        )
        for requirements in named.values()
    ]


def _versions(requirement: Requirement) -> str:
    satisfying = f" that satisfies {requirement.specifier}" if requirement.specifier else ""
    where = f" where {requirement.marker}" if requirement.marker else ""
    return f"any version{satisfying}{where}"


def _built_with(library: dict[str, Any]) -> list[Component]:
    """The compiler and the headers: they are in the library, but are not installed with it."""
    if not library:
        return []
    compiler, _, version = library["compiler"].partition(" ")
    return [
        Component(
            type=kind,
            name=name,
            version=number,
            description=description,
            scope=ComponentScope.EXCLUDED,
            bom_ref=f"{name}@{number}",
        )
        for kind, name, number, description in (
            (ComponentType.APPLICATION, compiler, version, "the compiler of the library"),
            (ComponentType.LIBRARY, "torch headers", library["torch"], "compiled against"),
        )
    ]
