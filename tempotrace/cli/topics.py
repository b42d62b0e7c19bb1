"""`tempotrace topics`: what a tenant needs on a cluster before any stage starts."""

from typing import Annotated

import typer

from schemas.topics import DEFAULT_TENANT
from tempotrace import topics_admin
from tempotrace.cli.options import Bootstrap, Json, KafkaProperties, Tenant, connect, emit
from tempotrace.cli.options import console as plain_console

app = typer.Typer()


@app.command()
def create(
    tenant: Tenant = DEFAULT_TENANT,
    partitions: Annotated[
        int | None, typer.Option(help="Partitions of each topic (default: as they are, else 4).")
    ] = None,
    bootstrap: Bootstrap = None,
    kafka_properties: KafkaProperties = None,
    as_json: Json = False,
) -> None:
    """Make a tenant's topics, as far as they are missing, and publish the schemas.

    Example: tempotrace topics create --tenant blue --partitions 8
    """
    kafka = connect(bootstrap, kafka_properties).kafka
    made = topics_admin.create(kafka, [tenant], partitions)
    published = topics_admin.publish_schemas(kafka)
    emit(
        {"created": made.created, "existing": made.existing, "schemas_published": published},
        as_json,
        lambda: print(
            f"{len(made.created)} topics made, {len(made.existing)} were there; {published} schemas published"
        ),
    )


@app.command("list")
def list_topics(
    tenant: Annotated[str | None, typer.Option(metavar="NAME", help="Only this tenant's.")] = None,
    bootstrap: Bootstrap = None,
    kafka_properties: KafkaProperties = None,
    as_json: Json = False,
) -> None:
    """Show our topics: partitions, and how many offsets they span.

    Example: tempotrace topics list --tenant default
    """
    found = topics_admin.listing(connect(bootstrap, kafka_properties).kafka, tenant)

    def human() -> None:
        from rich.table import Table

        table = Table("topic", "partitions", "records up to")
        for info in found:
            table.add_row(
                info.name, str(len(info.offsets)), str(sum(end - begin for begin, end in info.offsets))
            )
        plain_console().print(table)

    result = [
        {"topic": info.name, "partitions": [{"start": s, "end": e} for s, e in info.offsets]}
        for info in found
    ]
    emit({"topics": result}, as_json, human)
