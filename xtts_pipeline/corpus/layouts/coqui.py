"""Coqui: tables with the header `audio_file|text|speaker_name`, such as the XTTS fine-tuning demo writes."""

from pathlib import Path

from xtts_pipeline.corpus.layouts.layout import Found
from xtts_pipeline.corpus.layouts.table import id_of
from xtts_pipeline.corpus.rows import Row, RowCollector
from xtts_pipeline.corpus.tables import find_tables, read_header, read_table, split_in_name

COLUMNS = frozenset({"audio_file", "text"})


class Coqui:
    """The id is the path of the sound without its suffix; a table named after a split, such as metadata_eval.csv, gives it."""

    name = "coqui"
    looked_for = "a table with the header audio_file|text|speaker_name"
    parts = (("metadata*.csv",),)

    def find(self, source: Path) -> Found | None:
        """Return the table, or the folder's tables."""
        if source.is_file():
            return Found(source.parent, (source,)) if set(read_header(source).columns) >= COLUMNS else None
        tables = find_tables(source, COLUMNS)
        return Found(source, tables) if tables else None

    def read(self, found: Found, rows: RowCollector) -> None:
        """Add each row of each table."""
        for table in found.tables:
            split = split_in_name(table)
            for where, fields in read_table(table, rows):
                audio = fields["audio_file"].strip()
                rows.add(Row(where, id_of(audio), audio, fields["text"], fields.get("speaker_name", ""), split=split))
