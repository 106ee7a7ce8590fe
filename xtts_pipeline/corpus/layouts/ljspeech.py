"""Read LJSpeech: `metadata.csv` with `id|text` or `id|text|normalised text`, sound in `wavs/` or `wav/`."""

from pathlib import Path

from xtts_pipeline.corpus.layouts.layout import FoundCorpus
from xtts_pipeline.corpus.rows import CorpusRow, RowCollector, read_lines
from xtts_pipeline.corpus.tables import read_header
from xtts_pipeline.errors import Reason

TABLE = "metadata.csv"
FOLDERS = ("wavs", "wav")
# Coqui's tables and manifests may also be called metadata.csv and lie beside such a folder.
OTHER_HEADERS = ({"audio_file", "text"}, {"audio", "text"})


class LJSpeech:
    """Rows have no quoting and no header; the text is the last column, the normalised text if there is one."""

    name = "ljspeech"
    looked_for = f"{TABLE} (id|text or id|text|normalised text) beside wavs/ or wav/"
    parts = ((TABLE,), FOLDERS)

    def find(self, source: Path) -> FoundCorpus | None:
        """Return the folder with both parts; `source` may be its `metadata.csv`."""
        root = source.parent if source.name == TABLE and source.is_file() else source
        table = root / TABLE
        if not table.is_file() or not any((root / folder).is_dir() for folder in FOLDERS):
            return None
        first = set(read_header(table).columns)
        return None if any(header <= first for header in OTHER_HEADERS) else FoundCorpus(root, (table,))

    def read(self, found: FoundCorpus, rows: RowCollector) -> None:
        """Add each row of `metadata.csv`."""
        folder = next(folder for folder in FOLDERS if (found.root / folder).is_dir())
        for where, line in read_lines(found.tables[0], found.root, rows):
            fields = line.split("|")
            row_id = fields[0].strip()
            if len(fields) not in (2, 3):
                detail = f"{len(fields)} field{'s' * (len(fields) > 1)}; expected id|text or id|text|normalised text"
                rows.reject(where, Reason.BAD_ROW, detail, row_id)
                continue
            rows.add(CorpusRow(where, row_id, f"{folder}/{row_id}" if row_id else "", fields[-1]))
