"""Chinese markers: the source has each once, in Simplified characters, and recognizes them in both scripts.

``TRADITIONAL`` lists each character of the markers whose Traditional forms differ, with these forms; a test compares it
with the markers. Both functions keep each character's position, so spans of a text stay right.

    >>> import re
    >>> marker = re.compile(both_scripts("假设|[无没]有"))
    >>> [bool(marker.fullmatch(text)) for text in ("假设", "假設", "無有", "沒有", "假说")]
    [True, True, True, True, False]
    >>> simplified("結論：證據與証據")
    '结论：证据与证据'
"""

from __future__ import annotations

from typing import Final

_PAIRS: Final = (
    "与與两兩个個么麼么麽为為为爲义義书書于於产產从從仅僅价價众眾优優会會体體余餘关關内內写寫决決况況准準凑湊减減几幾凭憑击擊创創"
    "则則别別剂劑务務区區单單历歷原原参參双雙变變后後启啟员員响響严嚴国國图圖场場备備复復头頭实實审審对對寻尋导導将將尽盡层層岁歲"
    "广廣应應开開异異张張归歸当當录錄录録态態怀懷总總戏戲执執扩擴护護报報拟擬择擇据據损損换換数數断斷无無时時显顯术術权權条條来來"
    "构構标標树樹样樣检檢欢歡步步没沒测測滤濾点點状狀独獨现現电電画畫疗療码碼确確种種称稱类類紧緊红紅约約级級纪紀纯純纳納纸紙线線"
    "组組细細终終经經结結给給统統继繼综綜绩績维維缓緩编編网網罗羅职職联聯脑腦节節药藥获獲虑慮观觀规規见見视視览覽觉覺计計认認讨討让讓"
    "议議记記讲講许許论論设設访訪证證证証评評识識诉訴诊診词詞译譯试試话話询詢该該详詳语語误誤说說请請诸諸读讀课課谁誰调調谈談谢謝"
    "讼訟资資赖賴轮輪输輸过過运運还還这這进進远遠违違连連适適选選遗遺采採钥鑰错錯长長门門问問间間闻聞际際险險难難须須项項顺順预預"
    "们們学學题題额額风風验驗骤驟马馬师師志誌释釋着著游遊划劃并並并併"
)

TRADITIONAL: Final[dict[str, str]] = {}
for _at in range(0, len(_PAIRS), 2):
    if _PAIRS[_at] != _PAIRS[_at + 1]:
        TRADITIONAL[_PAIRS[_at]] = TRADITIONAL.get(_PAIRS[_at], "") + _PAIRS[_at + 1]

_SIMPLIFIED: Final = str.maketrans({other: one for one, others in TRADITIONAL.items() for other in others})


def simplified(text: str) -> str:
    """Return a text with the Simplified forms of the characters that markers use; all others stay."""
    return text.translate(_SIMPLIFIED)


def both_scripts(pattern: str) -> str:
    """Take a regular expression in Simplified characters; return one that matches either form of each character."""
    parts: list[str] = []
    is_in_class = is_escaped = False
    for character in pattern:
        forms = character + TRADITIONAL.get(character, "")
        parts.append(forms if is_in_class or len(forms) == 1 else f"[{forms}]")
        if not is_escaped and character in "[]":
            is_in_class = character == "["
        is_escaped = character == "\\" and not is_escaped
    return "".join(parts)
