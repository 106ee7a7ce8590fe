"""The roles of a table's columns, and the names that people give them."""

import re
from collections.abc import Mapping, Sequence

from xtts_pipeline.errors import nearest_name
from xtts_pipeline.system.terminal import printable

ROLES = ("audio", "text", "id", "speaker", "language", "split")
REQUIRED = ("audio", "text")
# The first name that a table has is taken. Names as `column_key` returns them.
_NAMES: dict[str, str] = {
    "audio": """
        audio audio_file audio_filepath audio_path audio_filename audio_file_path audiofile audiopath
        file_name filename file file_path filepath wav wavs wav_file wav_filename wav_path path sound sound_file clip
        recording fname
        datei dateiname dateipfad audiodatei tondatei wavdatei pfad aufnahme
        fichier fichier_audio nom_fichier nom_du_fichier chemin enregistrement
        archivo nombre_archivo fichero ruta grabación arquivo nome_arquivo ficheiro caminho gravação
        nome_file percorso registrazione bestand bestandsnaam geluidsbestand opname
        plik nazwa_pliku ścieżka nagranie soubor nahrávka súbor fájl fájlnév fișier tiedosto fil filnamn filnavn
        файл имя_файла путь аудио запись назва_файлу аудіо шлях αρχείο dosya dosya_adı ses ses_dosyası
        فایل نام_فایل صدا مسیر ملف اسم_الملف صوت קובץ फ़ाइल ऑडियो
        文件 文件名 音频 路径 檔案 音檔 ファイル ファイル名 音声 파일 파일명 오디오
        """,
    "text": """
        text normalized_text normalised_text text_normalized sentence transcription transcript transcripts raw_text
        utterance normalized_transcription caption prompt phrase speech
        satz transkript transkription abschrift texte transcription_normalisée texto frase transcripción
        transcrição testo trascrizione tekst zin transcriptie zdanie transkrypcja věta přepis szöveg mondat propoziție
        teksti lause mening setning sætning
        текст предложение фраза транскрипция речення κείμενο πρόταση metin cümle
        متن جمله نص جملة טקסט משפט पाठ वाक्य 文本 句子 文字 テキスト 文 文章 텍스트 문장
        """,
    "id": "id",
    "speaker": """
        speaker speaker_name speaker_id client_id spk speaker_key voice narrator reader
        sprecher sprecherin stimme locuteur locutrice voix hablante locutor locutora voz parlante voce spreker stem
        mówca mluvčí beszélő vorbitor puhuja talare taler диктор говорящий диктор_id ομιλητής konuşmacı
        گوینده متكلم المتحدث דובר वक्ता 说话人 說話者 話者 화자
        """,
    "language": "language lang locale sprache langue idioma lingua taal język язык мова dil زبان لغة 语言 言語 언어",
    "split": "split",
}
SYNONYMS = {role: tuple(names.split()) for role, names in _NAMES.items()}

# Columns of these names are of few words too. Names as `column_key` returns them.
NO_SPEAKERS = ("gender", "sex", "age", "accent", "dialect", "emotion", "style", "domain", "quality", "variant")


def column_key(name: str) -> str:
    """Return a column's name as it is compared: in lower case, words joined by `_`."""
    return re.sub(r"[\s\-]+", "_", name.strip().casefold())


def find_columns(columns: Sequence[str], given: Mapping[str, str], *, has_ids: bool = True) -> dict[str, str]:
    """Return role -> column for the roles that are given or have a known name. A given column may be missing.

    Given columns are in lower case, as `--columns` has them; those of JSON and parquet may not be.
    has_ids: without a column of files, ids are their names.
    """
    by_key = {column_key(column): column for column in reversed(columns)}
    by_lower = {column.lower(): column for column in reversed(columns)} | {column: column for column in columns}
    found = {role: by_lower.get(column, column) for role, column in given.items()}
    taken = set(found.values())
    for role, names in SYNONYMS.items():
        column = next((by_key[name] for name in names if name in by_key and by_key[name] not in taken), None)
        if role not in found and column is not None:
            found[role] = column
            taken.add(column)
    if has_ids and "audio" not in found and "id" in found:
        found["audio"] = found["id"]
    return found


def by_position(given: Mapping[str, str], columns: Sequence[str]) -> dict[str, str]:
    """Return role -> column, where a number that is no column's name is a position from 1."""
    names = {str(place): column for place, column in enumerate(columns, 1)} | {column: column for column in columns}
    return {role: names.get(column, column) for role, column in given.items()}


def unknown_column(given: Mapping[str, str], columns: Sequence[str], *, has_positions: bool = True) -> str:
    """Return which given column a table lacks, and the remedy; an empty text if it has all.

    Columns without names are called by their positions. has_positions: those with names may be given so, too.
    """
    placed = by_position(given, columns) if has_positions else given
    unknown = next((column for column in placed.values() if column not in columns), None)
    if unknown is None:
        return ""
    names = [printable(column) for column in columns if column and not column.isdecimal()]
    near = nearest_name(unknown, names)
    choices = ", ".join(names)
    if has_positions:
        choices += f"{', or ' if names else ''}positions from 1 to {len(columns)}"
    remedy = f"did you mean {near}?" if near else f"choose from {choices}"
    return f"--columns: found no column {printable(unknown)}; {remedy}"


def is_complete(found: Mapping[str, str], columns: Sequence[str]) -> bool:
    """Return whether a table with these columns has all of the roles, and the required ones are among them."""
    return all(role in found for role in REQUIRED) and set(found.values()) <= set(columns)
